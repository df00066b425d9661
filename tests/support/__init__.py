"""Code that tests share: real parts started and ended by the tests themselves, no mocks.

It refuses to know what any single test proves. Everything started here is ended by its own
process id, every wait has a limit, and nothing reads the developer's own settings.
"""
