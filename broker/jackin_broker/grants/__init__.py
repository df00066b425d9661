"""Grants: what an approval leaves behind, for how long, and how it is offered, kept and revoked."""
