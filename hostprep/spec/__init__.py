"""``hostprep.yml``: the one file an admin writes, found, read and checked.

Only the file: what it asks for is planned and done by the verbs that it names. YAML and pydantic
are loaded when a file is, and not before.
"""
