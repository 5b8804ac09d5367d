"""What the entries of a stream look like: columns, their types, and the one text of each value.

``column_types`` says what a value of each type is in Python and as text; ``schema_text`` reads and
writes schemas as people write them; ``stream_schema`` holds rows against a schema;
``schema_inference`` finds the schema of rows that are there.

Invariants: text in, text out: it knows no store, no stream and no clock. Whatever comes in may be
hostile: sizes are checked before memory is taken.
"""
