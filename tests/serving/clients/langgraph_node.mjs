// `@langchain/openai` in an agent of `@langchain/langgraph` for node, over chat and responses, whole and streamed.

import { tool } from "@langchain/core/tools";
import { MemorySaver } from "@langchain/langgraph";
import { createReactAgent } from "@langchain/langgraph/prebuilt";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";

const add = tool(({ a, b }) => String(a + b), {
  name: "add",
  description: "The sum of two numbers.",
  schema: z.object({ a: z.number(), b: z.number() }),
});
const Verdict = z.object({ colour: z.enum(["red", "green", "blue"]), sure: z.boolean() });
const answers = [];
const verdicts = [];

for (const useResponsesApi of [false, true]) {
  const options = { apiKey: "key", configuration: { baseURL: `${process.argv[2]}/v1` }, useResponsesApi };
  const llm = new ChatOpenAI({ model: "sum", ...options });
  for (const stream of [false, true]) {
    const agent = createReactAgent({ llm, tools: [add], checkpointer: new MemorySaver() });
    const config = { configurable: { thread_id: "1" } };
    for (const question of ["What is 2 + 3?", "And 10 + 20?"]) {
      const given = { messages: [["user", question]] };
      if (stream) for await (const _ of await agent.stream(given, { ...config, streamMode: "messages" }));
      else await agent.invoke(given, config);
      answers.push((await agent.getState(config)).values.messages.at(-1).text);
    }
  }
  const judge = new ChatOpenAI({ model: "tiny", ...options }).withStructuredOutput(Verdict);
  verdicts.push(await judge.invoke("Judge it."));
  for await (const verdict of await judge.stream("Judge it.")) verdicts.push(verdict);
}
console.log(JSON.stringify({ answers, verdicts }));
