"""Applies the patches in docs/extending.md to a tree, or reverts them.

A ```diff block has hunks without line numbers: @@, then lines that begin with a blank (context), - or +. The old text
of a hunk must occur exactly once in the file. A new file without a hunk is already in the tree and not shown.
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/extending.md"


class DoesNotFit(Exception):
    pass


class Change:
    """The change of one file."""

    def __init__(self, text):
        before, after = re.match(r"--- (\S+)\n\+\+\+ (\S+)\n", text).groups()
        self.path = after.removeprefix("b/")
        self.new = before == "/dev/null"
        self.hunks = []
        for hunk in re.split(r"^@@.*\n", text, flags=re.MULTILINE)[1:]:
            lines = hunk.splitlines()
            invalid = [line for line in lines if line[:1] not in ("", " ", "-", "+")]
            if invalid:
                raise DoesNotFit(f"{self.path}: '{invalid[0]}' does not begin with a blank, - or +")
            old = [line[1:] for line in lines if line[:1] != "+"]
            new = [line[1:] for line in lines if line[:1] != "-"]
            self.hunks.append(("\n".join(old) + "\n", "\n".join(new) + "\n"))

    def apply(self, text, reverse):
        """Returns the new text of the file. `text` and the result are None if the file does not exist."""
        if (text is None) != (self.new and not reverse):
            raise DoesNotFit(f"{self.path}: {'does not exist' if text is None else 'exists already'}")
        if self.new:
            if reverse:
                return None
            if len(self.hunks) != 1:
                raise DoesNotFit(f"{self.path}: a new file must have one hunk")
            return self.hunks[0][1]
        text = "\n" + text
        for old, new in self.hunks:
            old, new = ("\n" + new, "\n" + old) if reverse else ("\n" + old, "\n" + new)
            if text.count(old) != 1:
                raise DoesNotFit(f"{self.path}: expected once, found {text.count(old)} times:{old}")
            text = text.replace(old, new)
        return text[1:]


def blocks(page=PAGE):
    """Returns the changes of each block."""
    found = re.findall(r"^```diff\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [[Change(part) for part in re.split(r"^(?=--- )", block, flags=re.MULTILINE)[1:]] for block in found]


def apply(changes, tree, reverse=False):
    """Returns {path: new text, or None if the file does not exist} of applying changes to a tree or reverting them."""
    result = {}
    for change in changes:
        file = pathlib.Path(tree) / change.path
        text = result.get(change.path, file.read_text() if file.exists() else None)
        result[change.path] = change.apply(text, reverse)
    return result


def write(files, tree):
    for path, text in files.items():
        file = pathlib.Path(tree) / path
        if text is None:
            file.unlink()
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def is_in_tree(changes, tree=ROOT):
    """Returns whether the tree has these changes. Raises DoesNotFit if they can be neither applied nor reverted."""
    try:
        apply(changes, tree)
        return False
    except DoesNotFit as forward:
        try:
            apply(changes, tree, reverse=True)
            return True
        except DoesNotFit as backward:
            raise DoesNotFit(f"cannot be applied:\n{forward}\nor reverted:\n{backward}") from None
