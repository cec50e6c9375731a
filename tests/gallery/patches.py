"""The changes that docs/extending.md shows, to be made to a tree or taken out of it again.

A block of ```diff holds hunks without line numbers: @@, then lines that begin with a blank (stays), - or +. What is there
before stands in the file exactly once. A new file whose change has no hunk is in the tree and not shown.
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/extending.md"


class DoesNotFit(Exception):
    pass


class Change:
    """What is done to one file."""

    def __init__(self, text):
        before, after = re.match(r"--- (\S+)\n\+\+\+ (\S+)\n", text).groups()
        self.path = after.removeprefix("b/")
        self.new = before == "/dev/null"
        self.hunks = []
        for hunk in re.split(r"^@@.*\n", text, flags=re.MULTILINE)[1:]:
            lines = hunk.splitlines()
            strange = [line for line in lines if line[:1] not in ("", " ", "-", "+")]
            if strange:
                raise DoesNotFit(f"{self.path}: '{strange[0]}' begins with none of blank, - and +")
            old = [line[1:] for line in lines if line[:1] != "+"]
            new = [line[1:] for line in lines if line[:1] != "-"]
            self.hunks.append(("\n".join(old) + "\n", "\n".join(new) + "\n"))

    def made(self, text, reverse):
        """The file's text (None: there is no such file) afterwards."""
        if (text is None) != (self.new and not reverse):
            raise DoesNotFit(f"{self.path}: {'is not there' if text is None else 'is there already'}")
        if self.new:
            if reverse:
                return None
            if len(self.hunks) != 1:
                raise DoesNotFit(f"{self.path}: a new file is shown as a whole")
            return self.hunks[0][1]
        text = "\n" + text
        for old, new in self.hunks:
            old, new = ("\n" + new, "\n" + old) if reverse else ("\n" + old, "\n" + new)
            if text.count(old) != 1:
                raise DoesNotFit(f"{self.path}: is there {text.count(old)} times:{old}")
            text = text.replace(old, new)
        return text[1:]


def blocks(page=PAGE):
    """The changes of each block."""
    found = re.findall(r"^```diff\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [[Change(part) for part in re.split(r"^(?=--- )", block, flags=re.MULTILINE)[1:]] for block in found]


def make(changes, tree, reverse=False):
    """Makes them in a tree, or takes them out of it: {path: text, None for no such file}."""
    made = {}
    for change in changes:
        file = pathlib.Path(tree) / change.path
        text = made.get(change.path, file.read_text() if file.exists() else None)
        made[change.path] = change.made(text, reverse)
    return made


def write(made, tree):
    for path, text in made.items():
        file = pathlib.Path(tree) / path
        if text is None:
            file.unlink()
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def is_in_tree(changes, tree=ROOT):
    """Whether the tree has these changes already. Throws DoesNotFit where they can neither be made nor taken out."""
    try:
        make(changes, tree)
        return False
    except DoesNotFit as forward:
        try:
            make(changes, tree, reverse=True)
            return True
        except DoesNotFit as backward:
            raise DoesNotFit(f"cannot be made:\n{forward}\nnor taken out:\n{backward}") from None
