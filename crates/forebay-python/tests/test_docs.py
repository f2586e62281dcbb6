"""The examples of the README and of docs/python.md run."""

import os
import unittest

from common import run

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")


class DocsTest(unittest.TestCase):
    def run_examples(self, page, nr):
        with open(os.path.join(ROOT, page), encoding="utf-8") as file:
            examples = [part.split("```")[0] for part in file.read().split("```python\n")[1:]]
        self.assertEqual(len(examples), nr)
        for example in examples:
            ended = run(example)
            self.assertEqual((ended.returncode, ended.stderr), (0, ""), example)

    def test_the_example_of_the_readme_runs(self):
        self.run_examples("README.md", 1)

    def test_the_examples_of_the_page_run(self):
        self.run_examples("docs/python.md", 5)
