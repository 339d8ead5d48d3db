// Vercel's `ai` with three providers, whole and streamed. Openai's own has two APIs, of which responses is its default.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, isStepCount, Output, streamText, tool } from "ai";
import { z } from "zod";

const options = { baseURL: `${process.argv[2]}/v1`, apiKey: "key" };
const openai = createOpenAI(options);
const providers = [openai, openai.chat, createAnthropic(options), createOpenAICompatible({ name: "own", ...options })];
const add = tool({
  description: "The sum of two numbers.",
  inputSchema: z.object({ a: z.number(), b: z.number() }),
  execute: async ({ a, b }) => a + b,
});
const answers = [];

for (const provider of providers)
  for (const ask of [generateText, streamText]) {
    const messages = [];
    for (const content of ["What is 2 + 3?", "And 10 + 20?"]) {
      messages.push({ role: "user", content });
      const result = await ask({ model: provider("sum"), tools: { add }, stopWhen: isStepCount(5), messages });
      answers.push(await result.text);
      messages.push(...(await result.responseMessages));
    }
  }

const schema = z.object({ colour: z.enum(["red", "green", "blue"]), sure: z.boolean() });
const verdicts = [];
// The last provider asks for any JSON unless it is told that its server knows schemas.
for (const provider of providers.slice(0, 3)) {
  const asked = { model: provider("tiny"), prompt: "Judge it." };
  const output = Output.object({ schema });
  verdicts.push((await generateText({ ...asked, output })).output, await streamText({ ...asked, output }).output);
  verdicts.push((await generateObject({ ...asked, schema })).object);
}
console.log(JSON.stringify({ answers, verdicts }));
