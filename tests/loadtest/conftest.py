import sys
from pathlib import Path

# pytest's importlib mode adds no folder to the path; the helpers beside the tests are wanted here.
sys.path.insert(0, str(Path(__file__).parent))
