// `openai` for node: chat completions with its tool runner, and responses, whole and streamed.

import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "key" });
const questions = ["What is 2 + 3?", "And 10 + 20?"];
const description = "The sum of two numbers.";
const parameters = { type: "object", properties: { a: { type: "integer" }, b: { type: "integer" } } };
const add = ({ a, b }) => String(a + b);
const tools = [{ type: "function", function: { name: "add", description, parameters, function: add, parse: JSON.parse } }];
const answers = [];

for (const stream of [false, true]) {
  let messages = [{ role: "system", content: "Use the tool." }];
  for (const content of questions) {
    messages.push({ role: "user", content });
    const runner = client.chat.completions.runTools({ model: "sum", messages, tools, stream });
    answers.push(await runner.finalContent());
    messages = runner.messages;
  }
}

async function ask(input, stream) {
  const asked = { model: "sum", input, tools: [{ type: "function", name: "add", description, parameters }] };
  return stream ? client.responses.stream(asked).finalResponse() : client.responses.create(asked);
}

for (const stream of [false, true]) {
  const items = [];
  for (const content of questions) {
    items.push({ role: "user", content });
    for (;;) {
      const { output, output_text } = await ask(items, stream);
      items.push(...output);
      const calls = output.filter((item) => item.type === "function_call");
      if (!calls.length) {
        answers.push(output_text);
        break;
      }
      for (const { call_id, arguments: given } of calls)
        items.push({ type: "function_call_output", call_id, output: add(JSON.parse(given)) });
    }
  }
}

const Verdict = z.object({ colour: z.enum(["red", "green", "blue"]), sure: z.boolean() });
const messages = [{ role: "user", content: "Judge it." }];
const chat = { model: "tiny", messages, response_format: zodResponseFormat(Verdict, "verdict") };
const responses = { model: "tiny", input: messages, text: { format: zodTextFormat(Verdict, "verdict") } };
const verdicts = [
  (await client.chat.completions.parse(chat)).choices[0].message.parsed,
  (await client.chat.completions.stream(chat).finalChatCompletion()).choices[0].message.parsed,
  (await client.responses.parse(responses)).output_parsed,
  (await client.responses.stream(responses).finalResponse()).output_parsed,
];
console.log(JSON.stringify({ answers, verdicts }));
