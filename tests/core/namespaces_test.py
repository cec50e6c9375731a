"""Each folder's code is in its own namespace, and no two types of the program share a qualified name."""

import collections
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = {
    "core": "trireme", "ops": "trireme::ops", "model": "trireme::model", "comm": "trireme::comm",
    "data": "trireme::data", "trainer": "trireme::train", "launch": "trireme::cli",
}


def blocks(text):
    """(namespace, lines) of each section of a file; '' outside of the project's namespaces, None in an unnamed one."""
    stack, lines = [], []
    for line in text.splitlines():
        opened = re.match(r"(?:inline )?namespace(?: ([\w:]+))? \{$", line)
        if opened or re.match(r"\}  // namespace", line):
            yield "::".join(stack) if None not in stack else None, lines
            lines = []
            stack.append(opened.group(1)) if opened else stack.pop()
        else:
            lines.append(line)
    yield "", lines


def product_files():
    for folder in FOLDERS:
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in (".h", ".cc", ".cu"):
                yield folder, file


class Namespaces(unittest.TestCase):
    def test_follow_folders(self):
        for folder, file in product_files():
            for namespace, lines in blocks(file.read_text()):
                if not namespace or not namespace.startswith("trireme"):
                    continue
                # Types of other folders may only be declared.
                foreign = [line for line in lines if line and not re.match(r"(class|struct) \w+;|//", line)]
                own = FOLDERS[folder]
                inside = namespace == own or namespace.startswith(own + "::")
                if folder == "core":
                    inside = namespace.split("::")[1:2] not in [[name.split("::")[1]] for name in FOLDERS.values() if "::" in name]
                with self.subTest(file=str(file.relative_to(ROOT)), namespace=namespace):
                    self.assertTrue(inside or not foreign, foreign[:1])

    def test_no_type_has_the_name_of_another(self):
        homes = collections.defaultdict(set)
        for folder, file in product_files():
            for namespace, lines in blocks(file.read_text()):
                if not namespace:
                    continue
                for line in lines:
                    if found := re.match(r"(?:class|struct|enum(?: class)?|union) (\w+)(?: final)?(?: :[^;]*)?(?: \{.*)?$", line):
                        homes[f"{namespace}::{found.group(1)}"].add(str(file.relative_to(ROOT)))
        self.assertGreater(len(homes), 400)
        self.assertEqual({}, {name: sorted(files) for name, files in homes.items() if len(files) > 1})


if __name__ == "__main__":
    unittest.main()
