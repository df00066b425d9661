"""The configuration: one TOML file, read whole or not at all (DESIGN §14).

`load` and `parse` make a `Config`; `checks.py` warns; `migrations.py` brings older files here.
"""

from .load import load, parse
from .model import (
    SCHEMA,
    BinaryConfig,
    BrokerSettings,
    CapsuleConfig,
    CapsuleKind,
    Config,
    HomeKind,
    KeyringKind,
    Limits,
    Mount,
    NoOperator,
    PickerKind,
    UnmappedCwd,
)
from .problems import InvalidConfig, Problem

__all__ = [
    "SCHEMA",
    "BinaryConfig",
    "BrokerSettings",
    "CapsuleConfig",
    "CapsuleKind",
    "Config",
    "HomeKind",
    "InvalidConfig",
    "KeyringKind",
    "Limits",
    "Mount",
    "NoOperator",
    "PickerKind",
    "Problem",
    "UnmappedCwd",
    "load",
    "parse",
]
