"""What the pages of benches/claims and benches/gain share: records and tables."""

import json


def read(path):
    """The records of a file with one JSON object a line."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def table(head, rows, words=1):
    """Prints a table in Markdown; columns from `words` on hold numbers."""
    print(f"| {' | '.join(head)} |")
    print(f"|{' --- |' * words}{' ---: |' * (len(head) - words)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print()
