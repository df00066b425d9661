"""The configuration that `config init` writes: everything explained, nothing switched on.

Lines that begin with `# ` explain; lines that begin with `#` and a letter, bracket or brace are
configuration to take the `#` from. A test takes it from all of them and reads the result.
"""

from typing import Final

STARTER: Final = """\
# jackin-exec: who may ask for what. Only you and root may be able to write this file.
# Take the # from the lines that you want, then run: jackin-broker config check
schema = 1

[broker]
# Where keyring entries are read: auto, secret-service, macos, kwallet or vault.
#keyring = "auto"
# What a request gets while nobody is attached: deny (at once) or wait.
#no_operator = "deny"

# Credentials. A name with on_demand = true is a binding: its value is given to one command,
# after you said yes. Without it the value is resolved at launch and given to the agent.
[env]
# From the operating system's keyring; store the value with: jackin-broker credential add GH_TOKEN
#GH_TOKEN = { keyring = "github", username = "me", on_demand = true }
# From a command's output, a file, 1Password, or the broker's own environment.
#DB_PASS = { command = ["vault", "kv", "get", "-field=password", "db/prod"], on_demand = true }
#API_KEY = { op = "op://Work/Api/key", path = "Work/Api/key", on_demand = true }
#STG_URL = { value = "${STG_URL}", on_demand = true }
# Known to the agent from the start:
#PUBLIC_ENDPOINT = "https://api.example.com"

# A capsule is where an agent lives. Start one with: jackin-broker launch --runtime bwrap -- bash
#[capsules.web]
# bwrap, podman, docker, remote (a VM, over a bridge), or none (no boundary, for trying things).
#kind = "bwrap"
# The uids, as the host numbers them, under which the agent may ask. Your own if left out.
#uids = [1000]
# Programs of the host that may be called, by name. Each may do all that its arguments ask.
#host_binaries = ["gh", "git"]
# Directories of the capsule and what they are on the host.
#mounts = [{ capsule = "/workspaces/app", host = "~/src/app" }]
# What a call from any other directory gets: deny, or fallback to fallback_cwd.
#unmapped_cwd = "deny"

# How one of them runs: with an empty HOME of its own (private) or with your logins (operator).
#[capsules.web.binaries.gh]
#home = "private"

# Rules answer in your place: deny before ask before allow, else you are asked. argv has one
# pattern an argument: * stands for one that does not begin with -, ** for such a rest.
#[[rules]]
#action = "allow"
#capsule = "web"
#argv = ["gh", "pr", "list", "--limit", "*"]
#bindings = ["GH_TOKEN"]
# Needed with bindings where the agent can write: files there can run code with the credential.
#trust_cwd = true
#expires = 2027-06-30

[limits]
# Seconds until a request that nobody answered is refused, and that a command may run.
#approve_s = 300
#run_s = 1800
"""
