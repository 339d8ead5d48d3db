// `@anthropic-ai/sdk` for node: messages, and its tool runner, whole and streamed.

import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";

const client = new Anthropic({ baseURL: process.argv[2], apiKey: "key" });
const add = betaZodTool({
  name: "add",
  description: "The sum of two numbers.",
  inputSchema: z.object({ a: z.number(), b: z.number() }),
  run: ({ a, b }) => String(a + b),
});
const answers = [];

for (const stream of [false, true]) {
  let messages = [];
  for (const content of ["What is 2 + 3?", "And 10 + 20?"]) {
    messages.push({ role: "user", content });
    const asked = { model: "sum", max_tokens: 200, system: "Use the tool.", messages, tools: [add], stream };
    const runner = client.beta.messages.toolRunner(asked);
    const { content: blocks } = await runner.runUntilDone();
    answers.push(blocks[0].text);
    messages = [...runner.params.messages];
    if (messages.at(-1).role !== "assistant") messages.push({ role: "assistant", content: blocks });
  }
}

const Verdict = z.object({ colour: z.enum(["red", "green", "blue"]), sure: z.boolean() });
const judged = {
  model: "tiny",
  max_tokens: 200,
  messages: [{ role: "user", content: "Judge it." }],
  output_config: { format: zodOutputFormat(Verdict) },
};
const verdicts = [
  (await client.messages.parse(judged)).parsed_output,
  (await client.messages.stream(judged).finalMessage()).parsed_output,
];
console.log(JSON.stringify({ answers, verdicts }));
