"""Twenty varied prompts: questions, code, other languages, numbers, odd spacing, one long text."""

PROMPTS: tuple[str, ...] = (
    "What is a computer?",
    "Explain in one sentence why the sky is blue.",
    "Write a haiku about the sea.",
    "List three fruits and their colours.",
    'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n',
    "Translate to French: The cat sleeps on the chair.",
    "Was ist der Unterschied zwischen Wetter und Klima?",
    "¿Cuántos días tiene una semana?",
    "請用一句話介紹你自己。",
    "Привет! Расскажи о Москве.",
    "1, 1, 2, 3, 5, 8, 13,",
    "2 + 2 = 4. 3 + 3 = 6. 12 + 30 =",
    "   leading   spaces\tand\ttabs\n\n\nand blank lines   ",
    "emoji: 🙂🚀 and accents: naïve café Ångström",
    '{"name": "Ada", "born": 1815, "fields": ["mathematics",',
    "SELECT name, count(*) FROM users GROUP BY",
    "THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG.",
    "Once upon a time, in a village at the edge of a great forest, there lived",
    "Repeat after me: tick tock tick tock tick tock tick",
    " ".join(
        f"Item {i} of the inventory is a {c} box that weighs {i * 7 % 13} kilograms."
        for i, c in enumerate(("red", "blue", "green", "white", "black") * 4)
    ),
)
