"""Episodes of environments, played by hand."""


async def to_the_end(environment):
    """The last step of what the oracle does."""
    while True:
        step = await environment.step(environment.oracle())
        if step.terminated or step.truncated:
            return step
