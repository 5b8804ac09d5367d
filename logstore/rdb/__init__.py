"""What Redis and Valkey write a stream as: DUMP payloads and RDB files, to and from plain values.

Invariants: bytes in, values out, and back: no file, no store, no clock. Listpacks pass through as
they are and are not looked into. Whatever comes in may be hostile: every length and count is held
against what is there before memory is taken for it, and what is wrong is an InvalidPayloadError.
"""
