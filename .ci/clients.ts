// Publishes and finds an event with the types that openapi-typescript made.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.d.ts";

function check(holds: boolean, what: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(what));
}

const { url, token } = process.env;
const client = createClient<paths>({ baseUrl: url, headers: { authorization: `Bearer ${token}` } });

const event: components["schemas"]["NewEvent"] = {
  event_type: "invoice.created",
  idempotency_key: "typescript-1",
  payload: { total: "99.00" },
};
const { data, error } = await client.POST("/v1/events", { body: event });
check(data !== undefined, error);
const published: components["schemas"]["Publication"] | undefined = data.events[0];
check(published?.already_processed === false && published.status === "skipped", data);

const list = await client.GET("/v1/events", { params: { query: { idempotency_key: "typescript-1" } } });
check(list.data?.items.length === 1 && list.data.items[0]?.id === published.id, list);

// @ts-expect-error: an event has a type
const missing: components["schemas"]["NewEvent"] = { payload: {} };
const refused = await client.POST("/v1/events", { body: missing });
const problem: components["schemas"]["Problem"] | undefined = refused.error;
check(problem?.type === "urn:oncebox:problem:bad-request" && problem.request_id.length > 0, refused);
console.log("typescript: published, listed and refused as typed");
