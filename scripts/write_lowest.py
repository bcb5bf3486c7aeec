"""Print the lowest version of each dependency that pyproject.toml allows, as constraints."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement


def main() -> None:
    """Print a pin for each dependency of the package."""
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    for dependency in tomllib.loads(text)["project"]["dependencies"]:
        requirement = Requirement(dependency)
        (lowest,) = (one.version for one in requirement.specifier if one.operator == ">=")
        print(f"{requirement.name}=={lowest}")  # noqa: T201 - the output


if __name__ == "__main__":
    main()
