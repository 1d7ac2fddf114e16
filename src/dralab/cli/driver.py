"""`dralab driver`: run fake device drivers, and check any driver."""

import click

from dralab.cli import driver_check, driver_classic, driver_new, driver_run


@click.group()
def group() -> None:
    """Run fake device drivers, which need no hardware, and check any driver.

    Example: `dralab driver run gpu --kubeconfig lab.kubeconfig --node n1`
    """


group.add_command(driver_run.run)
group.add_command(driver_classic.group)
group.add_command(driver_new.new)
group.add_command(driver_check.check)
group.add_command(driver_check.checks)
