"""Runs all tests. A test that is skipped for a reason that is not listed here fails the run."""

import os
import sys
import unittest

# The reasons for which a test may be skipped: the interpreter or the machine lacks something.
REASONS = {
    "buffers in Python are there from 3.12 on",
    "this Python has no module for subinterpreters",
    "this file system has no direct I/O",
    "this file system reports no holes",
    "this file system syncs at once",
}


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    tests = unittest.defaultTestLoader.discover(folder)
    result = unittest.TextTestRunner().run(tests)
    others = [(str(test), why) for test, why in result.skipped if why not in REASONS]
    for test, why in others:
        print(f"{test}: skipped for a reason that is not in the list: {why}", file=sys.stderr)
    return 0 if result.wasSuccessful() and not others and result.testsRun > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
