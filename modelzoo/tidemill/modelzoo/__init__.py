"""Ready models, each in one file, written only with the public API."""

from tidemill.modelzoo.zoo import ARCHITECTURES, ZOO, ZooModel

__all__ = ["ARCHITECTURES", "ZOO", "ZooModel"]
