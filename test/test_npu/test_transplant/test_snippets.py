# The hand-labelled snippets: what must change, how exactly, and what must stay. Prints the confusion matrix.
import collections
import json
import os
import unittest

from transplant_case import HERE, convert, tool

with open(os.path.join(HERE, "snippets.json"), encoding="utf-8") as file:
    SNIPPETS = json.load(file)
WANTED_RECALL = 0.98


def options_of(snippet):
    options = dict(snippet.get("options", {}))
    if "rules" in options:
        options = {"custom": tool("custom").parse({"rules": options["rules"]})}
    return options


class TestSnippets(unittest.TestCase):
    def test_labels(self):
        counts, wrong = collections.Counter(), []
        for snippet in SNIPPETS:
            new, report = convert(snippet["input"], **options_of(snippet))
            to_change = snippet["input"] != snippet["expected"]
            if new == snippet["expected"]:
                counts["true positives" if to_change else "true negatives"] += 1
                continue
            wrong.append(f"{snippet['group']}: {snippet['name']} ({report.status}):\n{new}")
            counts["false negatives"] += to_change
            counts["false positives"] += new != snippet["input"]
        recall = counts["true positives"] / (counts["true positives"] + counts["false negatives"])
        print(f"\n{len(SNIPPETS)} snippets:", dict(counts), f"recall {recall:.3f}")
        self.assertEqual(counts["false positives"], 0, "\n".join(wrong))
        self.assertGreaterEqual(recall, WANTED_RECALL, "\n".join(wrong))

    def test_enough_of_them_and_every_guide_row(self):
        self.assertGreaterEqual(len(SNIPPETS), 150)
        groups = collections.Counter(snippet["group"] for snippet in SNIPPETS)
        self.assertEqual((groups["table 5"], groups["table 6"]), (16, 10))
        names = [(snippet["group"], snippet["name"]) for snippet in SNIPPETS]
        self.assertEqual(len(names), len(set(names)))
        kinds = {kind for snippet in SNIPPETS for kind in snippet.get("options", {}).get("rules", {})}
        self.assertEqual(kinds, {"ArgsModifyRule", "FuncNameModifyRule", "ModuleNameModifyRule"})

    def test_second_run_changes_nothing(self):
        # Also with the check for scripts that already handle npu switched off: the rules themselves have an end.
        for snippet in SNIPPETS:
            options = tool("unit").Options(**options_of(snippet))
            for respect_npu in (True, False):
                converter = tool("convert").Converter(options, respect_npu)
                once, _ = converter.convert(snippet["expected"].encode(), "x.py")
                if snippet["name"] in ("already npu", "already torch_npu") and not respect_npu:
                    continue
                self.assertEqual(once.decode(), snippet["expected"], snippet["name"])

    def test_converted_snippets_compile(self):
        for snippet in SNIPPETS:
            new, _ = convert(snippet["input"], **options_of(snippet))
            compile(new, snippet["name"], "exec")


if __name__ == "__main__":
    unittest.main()
