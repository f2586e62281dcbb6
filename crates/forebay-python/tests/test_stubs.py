"""The type stubs have the names of the package, and no others."""

import ast
import os
import unittest

import forebay


def names_of(path):
    """Returns the names in a stub: those of the module, and those of each class."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    top, classes = set(), {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            top.add(node.name)
        elif isinstance(node, ast.ClassDef):
            members = classes[node.name] = set()
            for member in node.body:
                if isinstance(member, ast.AnnAssign):
                    members.add(member.target.id)
                else:
                    members.add(member.name)
    return top, classes


class StubTest(unittest.TestCase):
    def setUp(self):
        folder = os.path.dirname(forebay.__file__)
        self.assertTrue(os.path.exists(os.path.join(folder, "py.typed")))
        self.top, self.classes = names_of(os.path.join(folder, "__init__.pyi"))

    def test_the_package_has_each_name_of_the_stubs(self):
        for name in self.top:
            self.assertTrue(callable(getattr(forebay, name)), name)
        for name, members in self.classes.items():
            for member in members - {"disk"}:
                self.assertTrue(hasattr(getattr(forebay, name), member), f"{name}.{member}")

    def test_the_stubs_have_each_name_of_the_package(self):
        self.assertEqual(set(forebay.__all__), self.top | set(self.classes))
        for name, members in self.classes.items():
            found = vars(getattr(forebay, name))
            public = {member for member in found if not member.startswith("_")}
            self.assertLessEqual(public, members, name)
