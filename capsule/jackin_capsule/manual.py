"""The texts of --help: they teach an agent what these programs do and what an answer means.

It refuses to know anything but words.
"""

EXEC = """\
usage: jackin-exec [-t|-T] [-v] [--reason R] [--want NAME,…] [--] COMMAND [ARG…]

Has COMMAND run, after the operator said yes, with the credentials that they ticked for it: a
program that is listed in $JACKIN_HOST_BINARIES on the operator's machine, any other in this
capsule, apart from you. You never see a credential: its value is taken out of the output.

  -t, --tty        give the command a terminal, also where only one of stdin, stdout and stderr is
                   one; the default where both stdin and stdout are. Its two streams become one
  -T, --no-tty     give it none, and keep stdout and stderr apart
  -v, --verbose    say what is waited for, where it runs, and how it ended
  --reason R       one sentence for the operator: why you need this
  --want NAME,…    bindings that the command needs, of those in $JACKIN_EXEC_BINDINGS;
                   shown first to the operator, never ticked for them
  --               the end of the options; COMMAND and its arguments are passed as they are,
                   no shell looks at them
  -h, --help       this text
  -V, --version    the version

Called by another name (a link), it is the command of that name and takes no options of its own.
Standard input is passed on; in a loop over lines use </dev/null, or the command reads the rest.

exit status
  the command's own, or 128 + n when signal n ended it
  124   the command was ended from outside: a time limit, the operator, or the broker's own end
  126   nothing was run; standard error says why and what to do next
  127   no such command at the target

126 with a code in parentheses is an answer, not a glitch: do not send the same command again
unless the hint says so.

examples
  jackin-exec --want GH_TOKEN --reason 'list my pull requests' -- gh pr list
  jackin-exec --want PGPASSWORD -- psql -h db -c 'select 1' app
"""

CAPSULE = """\
usage: jackin-capsule exec [OPTION…] [--] COMMAND [ARG…]
       jackin-capsule ask [--json] [--want NAME,…] [--] COMMAND [ARG…]
       jackin-capsule mcp
       jackin-capsule prompt [--format plain|claude|agents]
       jackin-capsule mcp-config --client NAME [--write [--file PATH]]
       jackin-capsule doctor [--json]
       jackin-capsule equip [--] COMMAND [ARG…]
       jackin-capsule init [--uid N] [--run-as N] [--] COMMAND [ARG…]
       jackin-capsule NAME --help

What runs inside a capsule. You are an agent and hold no credentials; these programs get a command
run with some, after the operator said yes.

  exec      the same as jackin-exec: ask for COMMAND to be run, and be it until it ends
  ask       would COMMAND be allowed, asked or denied, by rules alone? It prompts nobody and
            runs nothing. Exit status: 0 it would run, 3 the operator would be asked, 126 it
            would be denied or the broker cannot be asked (standard error says which)
  mcp       an MCP server on stdin and stdout, with the tool jackin_exec; an agent's program
            starts it
  prompt    the text that teaches an agent all this: as it is, for a system prompt (claude), or
            for a file of instructions such as AGENTS.md (agents)
  mcp-config
            how an agent's program is told of the server: claude, codex, gemini, opencode, vscode
            or generic. --write puts it into the program's own file and keeps what is there
  doctor    why it does not work: each part, with what to do. Exit status 1 if any is wrong
  equip     tells the agents that it knows of all this, in a HOME of the capsule's own, and is
            COMMAND then. `jackin-broker launch` puts it before the agent
  init      process 1 of a capsule: starts COMMAND, passes signals on, collects orphans and
            exits with COMMAND's status. Started by `jackin-broker launch`

`jackin-capsule NAME --help` says more of each.
"""

# Each sub-command's own; `exec` has EXEC.
TOPICS = {
    "exec": EXEC,
    "ask": """\
usage: jackin-capsule ask [--json] [--want NAME,…] [--] COMMAND [ARG…]

Would COMMAND be allowed, asked or denied, by the operator's rules alone? It prompts nobody, runs
nothing, and says nothing of what was approved before.

  --json           the answer as one object: outcome, code, reason
  --want NAME,…    bindings that the command would need
  --               the end of the options

exit status
  0     it would run without a question
  3     the operator would be asked
  126   it would be denied, or the broker cannot be asked; standard error or the answer says which
""",
    "mcp": """\
usage: jackin-capsule mcp

An MCP server on stdin and stdout, for an agent's program to start: its tool jackin_exec does what
jackin-exec does. It takes no options. `jackin-capsule mcp-config` prints how to register it.
""",
    "prompt": """\
usage: jackin-capsule prompt [--format plain|claude|agents]

Prints the text that teaches an agent what can be run here, how, and what the answers mean.

  --format F       plain: as it is, the default; claude: in a tag, for a system prompt; agents:
                   with headings, for a file of instructions such as AGENTS.md
""",
    "mcp-config": """\
usage: jackin-capsule mcp-config --client NAME [--write [--file PATH]]

Prints how an agent's program is told of the MCP server.

  --client NAME    claude, codex, gemini, opencode, vscode or generic
  --write          put it into the program's own file instead: what else is there stays, and so
                   does what somebody added to the entry, such as a timeout
  --file PATH      with --write: into this file
""",
    "doctor": """\
usage: jackin-capsule doctor [--json]

Says why it does not work: looks at each part from here to the broker, with what to do about it.

  --json           the same as one object

exit status: 0 if all is well, 1 if any part is wrong
""",
    "equip": """\
usage: jackin-capsule equip [--] COMMAND [ARG…]

Tells the agents that it knows (claude, codex, gemini, opencode) of the MCP server and of
jackin-exec, in a HOME that is the capsule's own, and is COMMAND then. `jackin-broker launch` puts
it before the agent.
""",
    "init": """\
usage: jackin-capsule init [--uid N] [--run-as N] [--] COMMAND [ARG…]

Process 1 of a capsule: starts COMMAND, passes signals on, collects orphans, runs commands for the
broker, and exits with COMMAND's status. Started by `jackin-broker launch`.

  --uid N          COMMAND's uid
  --run-as N       the uid of commands that the broker runs here
""",
}
