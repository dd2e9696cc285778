"""Plain drills, so that a small model learns the operations digit by digit, apart from any story."""

from random import Random


def drill(rng: Random) -> str:
    """One line: `37 + 58 = 95`, `37 + 58 = <<37+58=95>>95`, or a chain of two or three such steps."""
    kind = rng.random()
    if kind < 0.75:
        left, sign, right, result = _operation(rng)
        if rng.random() < 0.5:
            return f"{left} {sign} {right} = {result}"
        return _worked(left, sign, right, result)
    left, sign, right, result = _operation(rng)
    parts = [_worked(left, sign, right, result)]
    for _ in range(rng.randint(1, 2)):
        left, sign, right, result = _continue(rng, result)
        parts.append(_worked(left, sign, right, result))
    return ", ".join(parts)


def _worked(left: int, sign: str, right: int, result: int) -> str:
    return f"{left} {sign} {right} = <<{left}{sign}{right}={result}>>{result}"


def _number(rng: Random) -> int:
    """One to three digits; two digits are the most common, as in the stories."""
    return rng.randint(*rng.choice(((2, 9), (10, 99), (10, 99), (100, 499))))


def _operation(rng: Random) -> tuple[int, str, int, int]:
    sign = rng.choice("++--***//")
    if sign == "+":
        left, right = _number(rng), _number(rng)
        return left, sign, right, left + right
    if sign == "-":
        right, result = _number(rng), _number(rng)
        return right + result, sign, right, result
    small, large = rng.randint(2, 9), rng.randint(2, 99)
    if sign == "/":
        return small * large, sign, small, large
    left, right = (small, large) if rng.random() < 0.8 else (large, small)
    return left, sign, right, left * right


def _continue(rng: Random, have: int) -> tuple[int, str, int, int]:
    """A further step that starts from `have` and stays below a thousand where it can."""
    divisors = [d for d in range(2, 10) if have % d == 0 and have > d]
    kind = rng.random()
    if divisors and kind < 0.3:
        divisor = rng.choice(divisors)
        return have, "/", divisor, have // divisor
    if have < 100 and kind < 0.5:
        factor = rng.randint(2, 9)
        return factor, "*", have, factor * have
    if have > 2 and kind < 0.75:
        right = rng.randint(1, min(have - 1, 300))
        return have, "-", right, have - right
    right = _number(rng)
    return have, "+", right, have + right
