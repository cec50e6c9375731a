"""Checks the guides and READMEs against the tree: configurations load; options, fields, files, links and messages exist; quoted
changes apply; the configuration reference matches the .proto files; lines are short; and the site builds."""

import functools
import re
import sys
import unittest

from program import ProgramTest, run

from tools import ROOT, check

sys.path += [str(ROOT / "docs"), str(ROOT / "tests/gallery")]
import generate_configuration  # noqa: E402
import patches  # noqa: E402

GUIDES = sorted((ROOT / "docs").glob("*.md"))
FOLDERS = ("core", "ops", "model", "comm", "data", "trainer", "launch")
READMES = [file for folder in (*FOLDERS, "deploy", "tests") for file in sorted((ROOT / folder).rglob("README.md"))]
DOCS = [ROOT / "README.md", *READMES, *GUIDES]
SECTIONS = {  # the required sections, added to fragments of configurations
    "model": 'model { zoo { name: "resnet18-cifar" } }',
    "data": "data { cifar {} }",
    "batch": "batch { global: 64 }",
    "train": "train { epochs: 1 }",
    "schedule": "schedule { learning_rate: 0.1 }",
}


def blocks(file, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", file.read_text(), re.MULTILINE | re.DOTALL)


def without_code(file):
    return re.sub(r"^```.*?^```$", "", file.read_text(), flags=re.MULTILINE | re.DOTALL)


def each_block(language):
    return [(file, block) for file in DOCS for block in blocks(file, language)]


@functools.cache
def messages():
    """Returns the messages of the configuration as {message: {field: type}}."""
    found = {}
    for proto in ("trainer/config/config.proto", "model/model.proto", "data/data.proto"):
        text = re.sub(r"//.*", "", (ROOT / proto).read_text())
        text = re.sub(r"[^;{}]*\[deprecated = true[^;]*;", "", text)
        for name, body in re.findall(r"^message (\w+) \{(?:\}|(.*?)^\})", text, re.MULTILINE | re.DOTALL):
            found[name] = dict((b, a) for a, b in re.findall(r"(\w+) (\w+) = \d+", body))
    return found


def is_field(path):
    message = "RunConfig"
    for name in re.sub(r"\[\d*\]", "", path).split("."):
        message = messages().get(message, {}).get(name)
        if message is None:
            return False
    return True


@functools.cache
def sources():
    """Returns the sources as text, with string literals that are split over lines joined."""
    files = [
        file
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*")
        if file.suffix in (".cc", ".h", ".cu")
    ]
    texts = [re.sub(r'"\s*\n\s*"', "", file.read_text()) for file in files]
    return "\n".join([*texts, (ROOT / "launch/supervise").read_text()])


class Configurations(ProgramTest):
    def test_configurations_load(self):
        tried = 0
        for file, block in each_block("txtpb"):
            given = re.findall(r"^(\w+) ", block, re.MULTILINE)
            text = block + "\n".join(value for name, value in SECTIONS.items() if name not in given)
            path = self.scratch / "run.txtpb"
            path.write_text(text)
            with self.subTest(file=file.name, block=block[:60]):
                run("config", "check", path, "--no-data")
            tried += 1
        self.assertGreaterEqual(tried, 2)

    def test_fields_exist(self):
        tops = "|".join(messages()["RunConfig"])
        for file in DOCS:
            # `train.clip_norm`, `checkpoint.every_steps: 5`, --set batch.global=512
            text = re.sub(r"^```(?!sh).*?^```$", "", file.read_text(), flags=re.MULTILINE | re.DOTALL)
            for path in re.findall(rf"(?:`|--set )((?:{tops})\.\w[\w.\[\]]*)", text):
                if path.split(".")[-1] not in ("proto", "json", "jsonl", "safetensors", "h", "cc"):
                    self.assertTrue(is_field(path), f"{file.name}: {path} is not a field")


class Commands(ProgramTest):
    @staticmethod
    @functools.cache
    def help_of(command):
        return run(*command.split(), "--help")

    def test_options_exist(self):
        found = 0
        for file, block in each_block("sh"):
            for line in re.sub(r"\\\n", " ", block).splitlines():
                line = line.split(" # ")[0].split("  #")[0]
                for call in re.findall(r"(?:^|[ /])trireme ((?:data |config )?[a-z]+)(?= |$)([^;&|]*)", line):
                    found += 1
                    with self.subTest(file=file.name, line=line):
                        text = self.help_of(call[0])
                        for option in re.findall(r"(?<= )--?[a-z][\w-]*", call[1]):
                            self.assertRegex(text, rf"(^|[ ,]){option}\b")
        self.assertGreater(found, 10)

    def test_scripts_and_files_exist(self):
        for file in DOCS:
            text = file.read_text()
            for path in re.findall(r"(?<![\w/.])((?:deploy|launch|tests|docs)/[\w./*-]*[\w-])", text):
                if not re.search("NAME|FOLDER|PATH", path):
                    self.assertTrue(list(ROOT.glob(path)), f"{file}: {path} does not exist")


class Links(unittest.TestCase):
    @staticmethod
    @functools.cache
    def anchors(file):
        headings = re.findall(r"^#+ (.*)$", without_code(file), re.MULTILINE)
        return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}

    def test_targets_exist(self):
        for file in DOCS:
            for link, anchor in re.findall(r"\]\(([^)#:]*)(?:#([\w-]*))?\)", without_code(file)):
                target = (file.parent / link).resolve() if link else file
                self.assertTrue(target.exists(), f"{file}: the target of the link {link} does not exist")
                if anchor:
                    self.assertIn(anchor, self.anchors(target), f"{file}: {link}#{anchor}")

    def test_guides_link_only_to_guides(self):
        """The links must work in the repository, on the site and in an installation."""
        for file in GUIDES:
            for link in re.findall(r"\]\(([^)#:]+)", without_code(file)):
                self.assertEqual((file.parent / link).resolve().relative_to(ROOT).parts[0], "docs", f"{file.name}: {link}")


class Layout(unittest.TestCase):
    def test_lines_are_at_most_100_columns_wide(self):
        """Except code, tables and lines with a URL."""
        for file in DOCS:
            for line in without_code(file).splitlines():
                if not line.startswith(("|", "    ")) and "://" not in line:
                    self.assertLessEqual(len(line), 100, f"{file}: {line}")
        for pattern in ("*.h", "*.cc", "*.cu", "*.proto"):
            for file in (file for folder in (*FOLDERS, "tests") for file in (ROOT / folder).rglob(pattern)):
                for line in file.read_text().splitlines():
                    if line.lstrip().startswith("//") and "://" not in line:
                        self.assertLessEqual(len(line), 100, f"{file}: {line}")

    def test_readmes_fit_one_screen(self):
        for file in READMES:
            self.assertLessEqual(len(file.read_text().splitlines()), 60, file)
        self.assertLessEqual(len((ROOT / "README.md").read_text().splitlines()), 120)

    def test_lists_are_preceded_by_an_empty_line(self):
        """The site, unlike GitHub, requires one to recognize a list."""
        for file in GUIDES:
            for paragraph in re.split(r"\n\s*\n", without_code(file)):
                lines = paragraph.strip("\n").splitlines()
                if any(line.startswith("- ") for line in lines):
                    self.assertTrue(lines[0].startswith("- "), f"{file.name}: {lines[0]}")


class Site(ProgramTest):
    def test_the_configuration_reference_is_up_to_date(self):
        wanted = generate_configuration.Reference().page()
        self.assertEqual(generate_configuration.PAGE.read_text(), wanted, "outdated; run docs/build")

    def test_site_builds_without_warnings(self):
        check(sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", self.scratch / "site", cwd=ROOT)
        self.assertTrue((self.scratch / "site/configuration.html").exists())


class Messages(unittest.TestCase):
    def test_quoted_messages_exist_in_the_sources(self):
        text = (ROOT / "docs/troubleshooting.md").read_text()
        found = re.findall(r"\*\*(`+)([^*]+?)\1\*\*", text)
        self.assertGreater(len(found), 50)
        for message in (re.sub(r"\s+", " ", message) for _, message in found):
            constant = [part.strip() for part in message.split("…")]
            self.assertGreaterEqual(max(map(len, constant)), 7, message)
            for part in constant:  # ignores short words such as "in"
                self.assertTrue(len(part) < 7 or part in sources(), f"'{part}', of '{message}'")


class Changes(unittest.TestCase):
    def test_changes_apply_to_the_tree(self):
        """Each block of extending.md is either in the tree already or applies to it."""
        blocks_ = patches.blocks()
        in_tree = [patches.is_in_tree(changes) for changes in blocks_]
        self.assertIn(True, in_tree)
        self.assertIn(False, in_tree)
        self.assertGreater(sum(len(change.hunks) for changes in blocks_ for change in changes), 20)

    def test_group_norm_has_these_files_and_no_others(self):
        """So the page lists all files that a layer with its own op needs."""
        shown = {change.path for changes in patches.blocks() if patches.is_in_tree(changes) for change in changes}
        # Files that use it, and their tests.
        used = {
            "model/zoo/builder.h",
            "tests/model/freeze_test.cc",
            "tests/model/graph_test.cc",
            "tests/model/onnx_import_test.cc",
            "tests/trainer/runs.h",
        }
        folders = ("core", "ops", "model", "comm", "data", "trainer", "launch", "tests/ops", "tests/model", "tests/trainer")
        found = {
            str(file.relative_to(ROOT))
            for folder in (*folders, "tests/launch")
            for file in (ROOT / folder).rglob("*")
            if file.suffix in (".cc", ".h", ".cu", ".def", ".proto", ".py", ".txt")
            and re.search("group_?norm", file.read_text(), re.IGNORECASE)
        }
        self.assertLessEqual(used, found)
        self.assertEqual(found - used, {path for path in shown if path in found})
        groups = {"model/onnx/importer.h", "model/onnx/elementwise.cc", "model/onnx/values.cc"}  # GroupedValue
        self.assertEqual(shown - found, groups - found)
        self.assertEqual(len(shown - groups), 22)  # as the page says
        new = {change.path for changes in patches.blocks() for change in changes if change.new and not change.hunks}
        self.assertEqual(len(new), 7)


if __name__ == "__main__":
    unittest.main(verbosity=2)
