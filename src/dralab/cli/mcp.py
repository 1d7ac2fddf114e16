"""`dralab mcp`: let a language model ask about a cluster, over the Model Context Protocol."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from dralab.cli import objects
from dralab.cli._inventory import InventorySource
from dralab.cli._options import options
from dralab.files.sources import STDIN
from dralab.kernel.extras import require


@click.command(
    epilog="""Examples:

\b
  dralab mcp -f dump.yaml
  dralab mcp --kubeconfig ~/.kube/config

\b
In the configuration of a client:
  {"mcpServers": {"dralab": {"command": "dralab", "args": ["mcp", "-f", "dump.yaml"]}}}
"""
)
@options
def mcp(*, source: InventorySource) -> None:
    """Serve questions about a cluster to a language model, over standard input and output.

    The tools are explain, what_if, plan and simulate. The cluster is only read, again for each
    question; answers have at most 50 rows, simulations 60 s of CPU time and 4 GiB, and scenarios
    name neither files nor programs. Needs the extra `mcp`.
    """
    require("mcp", "dralab mcp")
    if STDIN in source.files:
        raise click.UsageError("-f -: standard input is the connection; name a file")
    from mcp.server import MCPServer
    from mcp.server.mcpserver.tools import Tool

    from dralab import __version__
    from dralab.lab.agent_tools import AgentTools
    from dralab.lab.view import Lab

    asked = source.or_usual_cluster()
    tools = AgentTools(lambda: Lab(objects.inventory(asked)))
    offered = [
        Tool.from_function(_telling(tool))
        for tool in (tools.explain, tools.what_if, tools.plan, tools.simulate)
    ]
    for tool in offered:
        # The SDK drops unknown arguments, so that a model would get the answer to another question.
        arguments = tool.fn_metadata.arg_model
        arguments.model_config["extra"] = "forbid"
        arguments.model_rebuild(force=True)
        tool.parameters["additionalProperties"] = False
    MCPServer("dralab", tools=offered, version=__version__, log_level="ERROR").run("stdio")


def _telling(tool: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tool whose refusals the model reads: the SDK hides what it does not know."""
    from mcp.server.mcpserver.exceptions import ToolError

    @wraps(tool)
    def call(*given: Any, **named: Any) -> Any:
        try:
            return tool(*given, **named)
        except (KeyError, TimeoutError, ValueError) as error:
            raise ToolError(str(error)) from None

    return call
