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
  124   the command was ended from outside: time limit, or the broker went away
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

`jackin-capsule exec --help` says more of exec.
"""
