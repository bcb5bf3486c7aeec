"""Print the lowest version of each dependency that pyproject.toml allows, as constraints."""

import tomllib
from pathlib import Path

from packaging.requirements import Requirement


def main() -> None:
    """Print a pin for each dependency of the package and of its extras."""
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"].values()
    for dependency in (*project["dependencies"], *(one for extra in extras for one in extra)):
        requirement = Requirement(dependency)
        (lowest,) = (one.version for one in requirement.specifier if one.operator == ">=")
        print(f"{requirement.name}=={lowest}")  # noqa: T201 - the output


if __name__ == "__main__":
    main()
