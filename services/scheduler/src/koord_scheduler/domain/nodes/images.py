"""The container images of a node."""

from koordcore.protocol.objects import Node


def normalized(image: str) -> str:
    """Return the image name, with `:latest` if it has neither tag nor digest."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


def images_of(node: Node) -> dict[str, int]:
    """Return normalized image name -> size in bytes."""
    return {normalized(name): image.size_bytes for image in node.status.images for name in image.names}
