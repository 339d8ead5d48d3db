"""`crewai`: a crew of one with a tool, and a task whose output has a form."""

from asked import QUESTIONS, URL, Verdict, add, tell
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool


def crew(name, question, tools=(), **task):
    llm = LLM(model=f"openai/{name}", base_url=f"{URL}/v1", api_key="key")
    agent = Agent(role="Adder", goal="Add.", backstory="You can add.", llm=llm, tools=list(tools))
    return Crew(agents=[agent], tasks=[Task(description=question, expected_output="It.", agent=agent, **task)])


adding = tool("add")(add)
answers = [crew("sum", question, [adding]).kickoff().raw for question in QUESTIONS]
verdict = crew("tiny", "Judge it.", output_pydantic=Verdict).kickoff().pydantic
tell(answers, [verdict])
