"""Makes and drops many small objects, sorts, and builds strings: a small program as Python runs them."""

import json
import re


def main():
    words = [f"word{number * 7919 % 10007}" for number in range(60_000)]
    table = {}
    for word in words:
        table.setdefault(word[-1], []).append(word)
    for key in sorted(table):
        table[key].sort()
    text = json.dumps(table)
    found = re.findall(r"word1\d+", text)
    print(len(text), len(found), sum(len(json.dumps(values)) for values in table.values()))


main()
