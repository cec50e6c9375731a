"""Tests that each folder of trainer/ includes exactly what its library links, and links only folders that precede it."""

import pathlib
import re
import unittest

TRAINER = pathlib.Path(__file__).resolve().parents[2] / "trainer"


def libraries():
    """Returns {folder: libraries of this project that it links}, in the order of CMakeLists.txt."""
    text = (TRAINER / "CMakeLists.txt").read_text()
    found = {}
    for folder, links in re.findall(r"trireme_add_library\(trainer_(\w+)\n.*?  LINKS(.*?)(?:\n  [A-Z]|\))", text, re.DOTALL):
        names = re.findall(r"trireme_(\w+)", links)
        found[folder] = {name.replace("trainer_", "trainer/") for name in names if not name.endswith("_proto")}
    return found


def included(folder):
    files = [file for file in (TRAINER / folder).rglob("*") if file.suffix in (".h", ".cc")]
    text = "\n".join(file.read_text() for file in files)
    return set(re.findall(r'^#include "(trainer/\w+|\w+)/', text, re.MULTILINE)) - {f"trainer/{folder}", "core"}


class Includes(unittest.TestCase):
    def test_every_folder_has_a_library(self):
        self.assertEqual({file.name for file in TRAINER.iterdir() if file.is_dir()}, set(libraries()))

    def test_folders_include_what_they_link(self):
        for folder, links in libraries().items():
            with self.subTest(folder=folder):
                self.assertEqual(included(folder), links - {"core"})

    def test_links_follow_the_order(self):
        before = set()
        for folder, links in libraries().items():
            with self.subTest(folder=folder):
                self.assertLessEqual({link for link in links if link.startswith("trainer/")}, before)
            before.add(f"trainer/{folder}")


if __name__ == "__main__":
    unittest.main()
