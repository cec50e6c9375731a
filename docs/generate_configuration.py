"""Writes docs/configuration.md, the reference of all configuration fields, from the comments of the .proto files.

  tests/python docs/generate_configuration.py            (docs/build also runs it)

Needs protoc and the packages of tests/requirements.txt.
"""

import collections
import pathlib
import re
import subprocess
import tempfile
import textwrap

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.unknown_fields import UnknownFieldSet

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/configuration.md"
TITLES = {
    "trainer/config/config.proto": "The run",
    "model/model.proto": "The network",
    "data/data.proto": "The data",
}
INTRODUCTION = """\
# Configuration reference

<!-- Generated from the comments of the .proto files by docs/build; do not edit. -->

This page lists all fields of a configuration, which is a [RunConfig](#runconfig) message in
protobuf text format (`*.txtpb`). Every field can also be set on the command line: `--set
optimizer.sgd.momentum=0.95`. A list of values is set as a whole: `--set model.zoo.hidden=64,32`.
The messages in a list have an index, from 0: `--set model.network.layer[0].conv2d.channels=16`.
`trireme config show run.txtpb --all` prints every field of a configuration with its value and
comment, and `trireme config check run.txtpb` checks a configuration. The old name of a renamed
field still works, with a warning that gives the new one.

The column *On resume* says what happens if a field has changed when a run resumes from a
checkpoint: the run is *refused*, the run is resumed and a warning is printed (*warned*), or the
change is not reported, since the field does not affect results apart from rounding (*free*).
[Resuming a run](resuming.md#what-may-change) has the details.
"""
MESSAGE_FIELD, ENUM_FIELD, ONEOF_FIELD, NESTED_MESSAGE, NESTED_ENUM = 2, 2, 8, 3, 4  # of descriptor.proto
MESSAGE, ENUM = 4, 5


def descriptors():
    """The FileDescriptorProtos of TITLES and what they import, with comments."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "set"
        subprocess.run(
            ["protoc", "-I", ROOT, "--include_imports", "--include_source_info", f"--descriptor_set_out={out}", *TITLES],
            check=True,
            cwd=ROOT,
        )
        return list(descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file)


def text_of(comment):
    """The comment's paragraphs, each on one line, escaped for Markdown outside of `code`."""
    paragraphs = re.split(r"\n\s*\n", comment.strip())
    parts = re.split(r"(`[^`]*`)", "\n\n".join(re.sub(r"\s+", " ", one).strip() for one in paragraphs))
    return "".join(part if part.startswith("`") else re.sub(r"([*|\[\]])", r"\\\1", part.replace("<", "&lt;")) for part in parts)


def wrapped(text):
    """Its lines, at most 100 columns wide, none of which begins with what Markdown takes for a list or heading."""
    for paragraph in text.split("\n\n"):
        yield ""
        for line in textwrap.wrap(paragraph, 99, break_long_words=False, break_on_hyphens=False):
            yield re.sub(r"^([-+#>]|\d+\.) ", r"\\\1 ", line)


class Reference:
    def __init__(self):
        self.comments, self.messages, self.enums, self.of_file = {}, {}, {}, collections.defaultdict(list)
        self.rules, self.rule_number = {}, None
        for file in descriptors():
            self.read(file)
        self.used = collections.defaultdict(list)  # {message: [(path, rule of the field)]}
        self.walk("RunConfig", "", None, ())

    def read(self, file):
        located = {}
        for one in file.source_code_info.location:
            comment = "\n".join(filter(None, (one.leading_comments, one.trailing_comments)))
            located[tuple(one.path)] = text_of(comment)
        for extension in file.extension:
            if extension.name == "on_resume":
                self.rule_number = extension.number
        self.comments[file.name] = located.get((12,), "")  # above "syntax", the file's own

        def add(message, path, outer):
            name = outer + message.name
            self.messages[name] = message
            self.of_file[file.name].append(name)
            self.comments[name] = located.get(path, "")
            for kind, number in ((message.field, MESSAGE_FIELD), (message.oneof_decl, ONEOF_FIELD)):
                for index, one in enumerate(kind):
                    self.comments[name, one.name] = located.get((*path, number, index), "")
            for index, one in enumerate(message.enum_type):
                add_enum(one, (*path, NESTED_ENUM, index), name + ".")
            for index, one in enumerate(message.nested_type):
                add(one, (*path, NESTED_MESSAGE, index), name + ".")

        def add_enum(enum, path, outer):
            name = outer + enum.name
            self.enums[name] = enum
            self.of_file[file.name].append(name)
            self.comments[name] = located.get(path, "")
            for index, one in enumerate(enum.value):
                self.comments[name, one.name] = located.get((*path, ENUM_FIELD, index), "")

        for index, one in enumerate(file.message_type):
            add(one, (MESSAGE, index), "")
        for index, one in enumerate(file.enum_type):
            add_enum(one, (ENUM, index), "")

    def fields(self, message):
        """Those of the message that are not deprecated."""
        return [field for field in self.messages[message].field if not field.options.deprecated]

    def own_rule(self, field):
        for unknown in UnknownFieldSet(field.options):
            if unknown.field_number == self.rule_number:
                return [value.name for value in self.enums["OnResume.Rule"].value if value.number == unknown.data][0]
        return None

    def walk(self, message, path, rule, outside):
        """Finds all paths from the configuration to each message, and the rule that its fields have there."""
        if message in outside:
            return
        self.used[message].append((path, rule))
        for field in self.fields(message):
            if field.type == Field.TYPE_MESSAGE:
                repeated = "[]" if field.label == Field.LABEL_REPEATED else ""
                inside = f"{path}.{field.name}{repeated}".lstrip(".")
                self.walk(self.name_of(field), inside, self.own_rule(field) or rule, (*outside, message))

    @staticmethod
    def name_of(field):
        return field.type_name.removeprefix(".trireme.")

    def has_section(self, name):
        return name in self.enums or self.fields(name) or self.comments[name]

    @staticmethod
    def link(name):
        return f"[{name.split('.')[-1]}](#{name.lower().replace('.', '')})"

    def type_of(self, field):
        if field.type in (Field.TYPE_MESSAGE, Field.TYPE_ENUM):
            name = self.link(self.name_of(field)) if self.has_section(self.name_of(field)) else "`{}`"
        else:
            name = Field.Type.Name(field.type).removeprefix("TYPE_").lower()
        return f"list of {name}" if field.label == Field.LABEL_REPEATED else name

    @staticmethod
    def default_of(field):
        if field.type == Field.TYPE_MESSAGE:
            return ""
        if field.label == Field.LABEL_REPEATED:
            return "empty"
        if not field.HasField("default_value"):
            return "unset"
        return f'`"{field.default_value}"`' if field.type == Field.TYPE_STRING else f"`{field.default_value}`"

    def rule_of(self, message, field):
        rules = {self.own_rule(field) or rule for _, rule in self.used[message]}
        rules.discard(None)
        if not rules:
            return "see its fields"
        return rules.pop().lower() if len(rules) == 1 else "as its parent field"

    def table(self, message, fields):
        yield "| Field | Type | Default | On resume | Description |"
        yield "|---|---|---|---|---|"
        for field in fields:
            text = self.comments[message, field.name].replace("\n\n", "<br>")
            yield (
                f"| `{field.name}` | {self.type_of(field)} | {self.default_of(field)} |"
                f" {self.rule_of(message, field)} | {text} |"
            )

    def place_of(self, name):
        """Where a message is set; of one with many places the messages that have it."""
        paths = [path for path, _ in self.used[name]]
        if len(paths) <= 6:
            return "Set as " + ", ".join(f"`{path}`" for path in paths) + "."
        users = [user for user in self.messages if name in map(self.name_of, self.fields(user))]
        return "A field of " + ", ".join(map(self.link, users)) + "."

    def section(self, name):
        yield ""
        yield f"### {name}"
        if name in self.used and name != "RunConfig":
            yield from wrapped(self.place_of(name))
        if self.comments[name]:
            yield from wrapped(self.comments[name])
        if name in self.enums:
            values = [value.name for value in self.enums[name].value]
            yield ""
            if not any(self.comments[name, value] for value in values):
                yield "One of " + ", ".join(f"`{value}`" for value in values) + "."
                return
            yield "| Value | Meaning |"
            yield "|---|---|"
            for value in values:
                yield f"| `{value}` | {self.comments[name, value]} |"
            return
        message = self.messages[name]
        plain = [field for field in self.fields(name) if not field.HasField("oneof_index")]
        if plain:
            yield ""
            yield from self.table(name, plain)
        for index, choice in enumerate(message.oneof_decl):
            yield from wrapped(f"At most one of these. {self.comments[name, choice.name]}")
            yield ""
            yield from self.table(name, [f for f in self.fields(name) if f.HasField("oneof_index") and f.oneof_index == index])

    def page(self):
        lines = INTRODUCTION.splitlines()
        for file, title in TITLES.items():
            lines += ["", f"## {title}", "", f"From `{file}`."]
            if "RunConfig" not in self.of_file[file]:  # the introduction says it
                lines += wrapped(self.comments[file])
            for name in filter(self.has_section, self.of_file[file]):
                lines += self.section(name)
        return "\n".join(line.rstrip() for line in lines) + "\n"


def main():
    PAGE.write_text(Reference().page())


if __name__ == "__main__":
    main()
