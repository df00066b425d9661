"""Spawning and supervising commands.

`host.start` runs a command on the host. Processes, from the outside in: the broker, one
*warden* that forks everything, and for each command a *leader* that reports its status, delivers
its signals and ends its tree. A confined leader is PID 1 of bubblewrap's namespaces.
"""
