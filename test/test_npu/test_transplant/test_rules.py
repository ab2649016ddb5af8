# Custom rule files: the guide's form works, and a wrong file is refused with the rule and the key named.
import json
import unittest

from transplant_case import TransplantCase, convert, tool

GUIDE = {
    "rules": {
        "ArgsModifyRule": [
            {"func_name": "name1", "arg_idx": 0, "arg_new": "agrs0"},
            {"func_name": "name2", "arg_idx": 0, "arg_new": "agrs0"},
        ],
        "FuncNameModifyRule": [{"old_name": "func", "new_name": "new_func"}],
        "ModuleNameModifyRule": [{"old_name": "module", "new_name": "new_module", "parent_module": "parent_module"}],
    }
}


class TestRules(TransplantCase):
    def test_guide_example(self):
        text = "import parent_module.module\nname1(1); name2(2, 3)\nfunc(parent_module.module.x)\n"
        new, report = convert(text, custom=tool("custom").parse(GUIDE))
        self.assertEqual(
            new,
            "import parent_module.new_module\nname1(agrs0); name2(agrs0, 3)\nnew_func(parent_module.new_module.x)\n",
        )
        self.assertEqual(len(report.changes), 5)

    def test_file_is_used_by_the_command(self):
        rules = self.write("rules.json", json.dumps(GUIDE))
        source = self.write("a.py", "name1(1)\n")
        self.assertEqual(self.run_tool("-i", source, "-o", self.path("out"), "-r", rules).returncode, 0)
        self.assertEqual(self.read("out", "a_msft", "a.py"), "name1(agrs0)\n")

    def test_missing_argument_is_a_hint(self):
        new, report = convert("name1()\n", custom=tool("custom").parse(GUIDE))
        self.assertEqual(new, "name1()\n")
        self.assertIn("no argument 0", report.hints[0].text)

    def refused(self, content, *words):
        with self.assertRaises(tool("custom").RuleError) as caught:
            tool("custom").parse(content)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_bad_rules_name_rule_and_key(self):
        def args(**changes):
            rule = {"func_name": "f", "arg_idx": 0, "arg_new": "x"} | changes
            return {"rules": {"ArgsModifyRule": [{k: v for k, v in rule.items() if v is not None}]}}

        self.refused(args(arg_idx=None), "ArgsModifyRule[0]", '"arg_idx"')
        self.refused(args(arg_idx="0"), "ArgsModifyRule[0]", '"arg_idx"', "whole number")
        self.refused(args(arg_idx=True), '"arg_idx"')
        self.refused(args(arg_idx=-1), '"arg_idx"', "negative")
        self.refused(args(arg_new="1 +"), '"arg_new"', "expression")
        self.refused(args(arg_new="1, 2"), '"arg_new"')
        self.refused(args(func_name="a b"), '"func_name"')
        self.refused(args(extra=1), 'unknown key "extra"')
        self.refused({"rules": {"FuncNameModifyRule": [{"old_name": "a"}]}}, "FuncNameModifyRule[0]", '"new_name"')
        self.refused({"rules": {"ModuleNameModifyRule": [{"old_name": "a", "new_name": 3}]}}, '"new_name"', "string")
        self.refused({"rules": {"FuncNameModifyRule": [{"old_name": "a", "new_name": "class"}]}}, '"new_name"')
        twice = [{"old_name": "a", "new_name": "b"}, {"old_name": "a", "new_name": "c"}]
        for kind in ("FuncNameModifyRule", "ModuleNameModifyRule"):
            self.refused({"rules": {kind: twice}}, f"{kind}[1]", '"old_name"', '"a" has a rule already')
        self.refused({"rules": {"OtherRule": []}}, '"OtherRule"', "ArgsModifyRule")
        self.refused({"rules": {"ArgsModifyRule": {}}}, "ArgsModifyRule", "list")
        self.refused({"rules": {"ArgsModifyRule": [1]}}, "ArgsModifyRule[0]", "object")
        self.refused({"rules": []}, '"rules"')
        self.refused({"rule": {}}, '"rules"')
        self.refused([], '"rules"')

    def test_command_refuses_before_reading_sources(self):
        source = self.write("a.py", "x.cuda()\n")
        for content in ("{", "[" * 100000, b"\xff\xfe", '{"rules": {"ArgsModifyRule": [{}]}}'):
            rules = self.write("rules.json", content)
            done = self.run_tool("-i", source, "-o", self.path("out"), "-r", rules)
            self.assertEqual(done.returncode, 2)
            self.assertIn("rules.json", done.stderr)
        self.assertIn('ArgsModifyRule[0]: missing key "func_name"', done.stderr)
        self.assertEqual(self.run_tool("-i", source, "-o", self.path("out"), "-r", self.path("no.json")).returncode, 2)


if __name__ == "__main__":
    unittest.main()
