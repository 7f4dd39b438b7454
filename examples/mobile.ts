// An app without `sessionStorage`: the id outlives a killed app, which asks again.
import { idOf, submitOnce } from "submit-lock/browser";

/** Such as AsyncStorage. */
interface AppStorage {
  getItem(key: string): Promise<string | null>;
  setItem(key: string, value: string): Promise<void>;
  removeItem(key: string): Promise<void>;
}

export async function order(url: string, cart: string, storage: AppStorage): Promise<Response> {
  const name = `order:${cart}`;
  const id = (await storage.getItem(name)) ?? idOf(name);
  await storage.setItem(name, id);
  const answer = await submitOnce(url, { method: "POST", once: { name, id } });
  // After a refusal or an error, the order may exist. A refusal that the shop keeps comes again.
  if (answer.status < 400 || answer.headers.has("Idempotent-Replayed")) {
    await storage.removeItem(name);
  }
  return answer;
}
