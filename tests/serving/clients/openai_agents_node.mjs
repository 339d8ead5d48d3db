// `@openai/agents` for node: an agent with a tool, over responses and over chat completions, whole and streamed.

import { Agent, OpenAIProvider, Runner, tool } from "@openai/agents";
import { z } from "zod";

const add = tool({
  name: "add",
  description: "The sum of two numbers.",
  parameters: z.object({ a: z.number(), b: z.number() }),
  execute: async ({ a, b }) => a + b,
});
const adder = new Agent({ name: "Adder", instructions: "Use the tool.", tools: [add], model: "sum" });
const outputType = z.object({ colour: z.enum(["red", "green", "blue"]), sure: z.boolean() });
const judge = new Agent({ name: "Judge", outputType, model: "tiny" });
const answers = [];
const verdicts = [];

for (const useResponses of [true, false]) {
  const modelProvider = new OpenAIProvider({ apiKey: "key", baseURL: `${process.argv[2]}/v1`, useResponses });
  const runner = new Runner({ modelProvider });
  for (const stream of [false, true]) {
    let history = [];
    for (const content of ["What is 2 + 3?", "And 10 + 20?"]) {
      const result = await runner.run(adder, [...history, { role: "user", content }], { stream });
      await result.completed;
      answers.push(result.finalOutput);
      history = result.history;
    }
    const judged = await runner.run(judge, "Judge it.", { stream });
    await judged.completed;
    verdicts.push(judged.finalOutput);
  }
}
console.log(JSON.stringify({ answers, verdicts }));
