"""One row of each published set, in its publisher's form; invented, because no published text belongs here."""

from __future__ import annotations

import json
from typing import Any

HARNESS = """import copy

def generate_test_case(number):
    return 2, 4

def exec_test(result, ans):
    return int(result == ans)

exec_context = '''
x = test_input
[insert]
'''

def test_execution(solution):
    test_input, expected = generate_test_case(1)
    scope = {"test_input": test_input}
    exec(exec_context.replace("[insert]", solution), scope)
    assert exec_test(scope["result"], expected)
"""

ROWS: dict[str, dict[str, Any]] = {
    "gsm8k": {
        "question": "A shelf has 4 rows of 12 jars and 8 jars fall. How many are left?",
        "answer": "There were 4*12=<<4*12=48>>48 jars.\nThen 48-8=<<48-8=40>>40 are left.\n#### 1,040",
    },
    "math": {
        "problem": "Solve $2x = 1$.",
        "level": "Level 1",
        "type": "Algebra",
        "solution": "Halve it: first $\\boxed{2}$, no: $x = \\boxed{\\frac{1}{2}}$.",
    },
    "mathqa": {
        "Problem": "a box weighs 3 kg ; how heavy are 9 boxes ?",
        "Rationale": "3 * 9 = 27",
        "options": "a ) 9 , b ) 12 , c ) 27 , d ) 30.5 , e ) none of these",
        "correct": "c",
        "annotated_formula": "multiply(3, 9)",
        "linear_formula": "multiply(n0,n1)|",
        "category": "general",
    },
    "aime_2025": {"id": "3", "problem": "Find the remainder of $7^{2}$ modulo $50$.", "answer": "049"},
    "hotpotqa": {
        "_id": "5a0",
        "question": "In which town was the founder of Acme born?",
        "answer": "Lund",
        "type": "bridge",
        "level": "easy",
        "supporting_facts": [["Acme", 0], ["Ada Berg", 1], ["Acme", 1]],
        "context": [
            ["Acme", ["Acme is a firm.", " Ada Berg founded it."]],
            ["Ada Berg", ["A chemist.", " Born in Lund."]],
        ],
    },
    "squad_v2": {
        "id": "56a",
        "title": "North_Lake",
        "context": "The lake froze in 1902.",
        "question": "When did the lake freeze?",
        "answers": {"text": ["1902", "in 1902", "1902"], "answer_start": [18, 15, 18]},
    },
    "triviaqa": {
        "Question": "Which metal is liquid at room temperature?",
        "QuestionId": "tc_1",
        "QuestionSource": "somewhere",
        "Answer": {"Value": "Mercury", "Aliases": ["Mercury", "Quicksilver"], "NormalizedValue": "mercury"},
    },
    "nq": {"question": "who built the old bridge", "answer": ["Ada Berg", "A. Berg"]},
    "mbpp": {
        "task_id": 601,
        "text": "Write a function to double a number.",
        "code": "def step(x):\r\n    return x\r\ndef double(x):\r\n    return step(x) * 2",
        "test_list": ["assert set([double(1)]) == {2}", "assert double(3) == 6", "assert double(math.pi) > 6"],
        "test_setup_code": "import math",
        "challenge_test_list": [],
    },
    "humaneval": {
        "task_id": "HumanEval/900",
        "prompt": 'from typing import List\n\n\ndef total(xs: List[int]) -> int:\n    """Add them.\n'
        '    >>> total([1, 2])\n    3\n    >>> total([])\n    0\n    """\n',
        "entry_point": "total",
        "canonical_solution": "    return sum(xs)\n",
        "test": "\nMETADATA = {}\n\ndef check(candidate):\n    assert candidate([5, 6]) == 11\n",
    },
    "apps": {
        "problem_id": 7,
        "question": "Double it.\n\nInput\n3\nOutput\n6\n",
        "solutions": json.dumps(["print(2 * int(input()))", "other"]),
        "input_output": json.dumps({"inputs": ["3\n", "40\n"], "outputs": ["6\n", "80\n"]}),
        "difficulty": "interview",
        "url": "https://example.org/7",
        "starter_code": "",
    },
    "ds1000": {
        "prompt": "Problem:\nDouble x.\nA:\n<code>\nx = 1\n</code>\nresult = ... # put solution in this variable\n",
        "reference_code": "result = x * 2",
        "metadata": {"problem_id": 12, "library": "Numpy", "perturbation_type": "Origin", "test_case_cnt": 1},
        "code_context": HARNESS,
    },
}

NATIVE: dict[str, dict[str, Any]] = {
    "math": {
        "problem": "Solve $2x = 1$.",
        "problem_type": "math",
        "source": "math",
        "ground_truth": "\\frac{1}{2}",
        "meta": {"full_solution": "Halve it.", "level": "Level 1", "type": "Algebra"},
    },
    "qa": {
        "problem": "Based on the following passages, answer the question.\n\n[Acme]\nAcme is a firm.\n\n"
        "[Ada Berg (chemist)]\nA chemist. [1]\nBorn in Lund.\n\nQuestion: Where was she born?",
        "problem_type": "qa",
        "source": "hotpotqa",
        "ground_truth": "Lund|the town of Lund",
        "meta": {"id": "5a0", "type": "bridge", "level": "hard"},
    },
    "code": {
        "problem": ROWS["humaneval"]["prompt"],
        "problem_type": "code",
        "source": "humaneval",
        "ground_truth": "    return sum(xs)\n",
        "meta": {"task_id": "HumanEval/900", "entry_point": "total", "test": ROWS["humaneval"]["test"]},
    },
    "choice": {
        "problem": "How heavy are 9 boxes?\nA) 9\nB) 12\nC) 27\nD) 30.5\nE) none of these",
        "problem_type": "mathqa_mc",
        "source": "mathqa",
        "ground_truth": "c",
        "meta": {},
    },
}
