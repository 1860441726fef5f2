"""Ready models, each in one file, written only with the public API."""

from tidemill.modelzoo.zoo import ZOO, ZooModel

__all__ = ["ZOO", "ZooModel"]
