"""Conditions as people write them: ``temp > 20 and tags.room = 'a'``.

``condition_text`` reads the text; ``condition_tree`` says what it is made of; ``condition_binding``
finds the columns and makes values of their types of the literals; ``condition_values`` reads what
is stored, to be compared; ``entry_conditions`` asks entries. Scans ask columns of Arrow
(``scan.conditions``), by the same bound tree.

Invariants: a condition is understood and checked whole before anything is read. It knows no store.
Whatever comes in may be hostile: sizes and depths are bounded before memory is taken.
"""
