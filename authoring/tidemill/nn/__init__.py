"""Layers: the modules that models are made of."""

from tidemill.nn.activation import activation_function_from_name
from tidemill.nn.attention import AttentionWithRope, KeyValue, MultiheadAttention, SlotCache
from tidemill.nn.batch_norm import BatchNorm
from tidemill.nn.block_linear import BlockLinear
from tidemill.nn.clamp import clamp
from tidemill.nn.conv import Conv1D, Conv2d, Conv3D
from tidemill.nn.conv_transpose import ConvTranspose1d, WeightNormConvTranspose1d
from tidemill.nn.embedding import Embedding
from tidemill.nn.group_norm import GroupNorm
from tidemill.nn.identity import Identity
from tidemill.nn.kv_cache import KVCacheParams
from tidemill.nn.layer import (
    Layer,
    LayerList,
    LoadReport,
    MissingLayer,
    Module,
    Sequential,
    add_layer_hook,
    bundle_graphs,
    clear_hooks,
)
from tidemill.nn.linear import Linear
from tidemill.nn.mlp import MLP, FusedMLP
from tidemill.nn.moe import MoE, MoEGate
from tidemill.nn.norm import ConstantLayerNorm, LayerNorm, RMSNorm
from tidemill.nn.pool import AvgPool1d, AvgPool2d, AvgPool3d, MaxPool1d, MaxPool2d, MaxPool3d
from tidemill.nn.recurrent import GRU, LSTM
from tidemill.nn.recurrent_cell import GRUCell, LSTMCell
from tidemill.nn.rotary import DynamicRotaryEmbedding, LinearRotaryEmbedding, LinearScalingParams, RotaryEmbedding
from tidemill.nn.rotary_scaling import (
    Llama3RopeScalingParams,
    Llama3RotaryEmbedding,
    LongRoPERotaryEmbedding,
    LongRoPEScalingParams,
    YarnRotaryEmbedding,
    YarnScalingParams,
)
from tidemill.nn.stacked_linear import StackedLinear
from tidemill.nn.transformer import ReturnLogits, Transformer, TransformerBlock

__all__ = [
    "GRU",
    "LSTM",
    "MLP",
    "AttentionWithRope",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "BatchNorm",
    "BlockLinear",
    "ConstantLayerNorm",
    "Conv1D",
    "Conv2d",
    "Conv3D",
    "ConvTranspose1d",
    "DynamicRotaryEmbedding",
    "Embedding",
    "FusedMLP",
    "GRUCell",
    "GroupNorm",
    "Identity",
    "KVCacheParams",
    "KeyValue",
    "LSTMCell",
    "Layer",
    "LayerList",
    "LayerNorm",
    "Linear",
    "LinearRotaryEmbedding",
    "LinearScalingParams",
    "Llama3RopeScalingParams",
    "Llama3RotaryEmbedding",
    "LoadReport",
    "LongRoPERotaryEmbedding",
    "LongRoPEScalingParams",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MissingLayer",
    "MoE",
    "MoEGate",
    "Module",
    "MultiheadAttention",
    "RMSNorm",
    "ReturnLogits",
    "RotaryEmbedding",
    "Sequential",
    "SlotCache",
    "StackedLinear",
    "Transformer",
    "TransformerBlock",
    "WeightNormConvTranspose1d",
    "YarnRotaryEmbedding",
    "YarnScalingParams",
    "activation_function_from_name",
    "add_layer_hook",
    "bundle_graphs",
    "clamp",
    "clear_hooks",
]
