"""Trees, JSON and regular expressions: trace-script.py N. What it prints depends on N only."""

import collections
import json
import re
import sys


class Node:
    __slots__ = ("left", "right", "key")

    def __init__(self, key):
        self.left = self.right = None
        self.key = key


def insert(node, key):
    if node is None:
        return Node(key)
    if key < node.key:
        node.left = insert(node.left, key)
    else:
        node.right = insert(node.right, key)
    return node


def walk(node):
    if node is not None:
        yield from walk(node.left)
        yield node.key
        yield from walk(node.right)


root = None
seed = 1
for _ in range(int(sys.argv[1])):
    seed = (seed * 48271) % 0x7FFFFFFF
    root = insert(root, seed % 10007)
keys = list(walk(root))
text = json.dumps({"keys": keys, "sum": sum(keys)})
words = re.findall(r"[1-9]\d{2,3}", text)
count = collections.Counter(word[0] for word in words)
print(len(text), json.loads(text)["sum"], sorted(count.items()))
print(sorted(keys, key=lambda key: str(key)[::-1])[:5])
