"""The configuration: one TOML file, read whole or not at all (DESIGN §14).

`load` and `parse` make a `Config`; `warnings` says what is unwise in it, `check_mounts` and
`check_binaries` what only this machine can tell is wrong; `migrations.py` brings older files here.
"""

from .capsules import COMPAT_CONSTRUCT
from .dangers import rule_warnings, warnings
from .exposure import check_binaries, check_mounts
from .load import load, parse, run_limit_s
from .model import (
    SCHEMA,
    Allowance,
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
    "COMPAT_CONSTRUCT",
    "SCHEMA",
    "Allowance",
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
    "check_binaries",
    "check_mounts",
    "load",
    "parse",
    "rule_warnings",
    "run_limit_s",
    "warnings",
]
