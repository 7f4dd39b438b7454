import { afterEach, describe, expect, test, vi } from "vitest";
import { Page, TabStorage } from "../../support/page.ts";

class Field {
  type = "text";
  name = "";
  value = "";
  form: FakeForm | undefined;

  remove(): void {
    this.form?.fields.delete(this);
  }
}

/** As much of a form as `protectForm` uses. Chromium has the rest: `test/lab/browser`. */
class FakeForm extends EventTarget {
  readonly fields = new Set<Field>();
  readonly attributes = new Map<string, string>();
  readonly window = Object.assign(new EventTarget(), {
    performance: { getEntriesByType: () => [{ toJSON: () => ({ type: this.visit }) }] },
  });
  readonly ownerDocument = {
    URL: "https://shop.example/checkout?step=2",
    baseURI: "https://shop.example/",
    defaultView: this.window,
    createElement: () => new Field(),
  };
  readonly elements = {
    namedItem: (name: string) => [...this.fields].find((each) => each.name === name) ?? null,
  };
  readonly button = { disabled: false };
  readonly visit: string;

  constructor({ visit = "navigate", action = "/orders", field = "" } = {}) {
    super();
    this.visit = visit;
    if (action) this.attributes.set("action", action);
    if (field) this.append(Object.assign(new Field(), { name: "submissionId", value: field }));
  }

  getAttribute(name: string): string | null {
    return this.attributes.get(name) ?? null;
  }

  setAttribute(name: string, value: string): void {
    this.attributes.set(name, value);
  }

  removeAttribute(name: string): void {
    this.attributes.delete(name);
  }

  append(field: Field): void {
    this.fields.add(field);
    field.form = this;
  }

  /** @returns whether the browser would send it now */
  submit(): boolean {
    const event = new Event("submit", { cancelable: true });
    return this.dispatchEvent(Object.assign(event, { submitter: this.button }));
  }

  get id(): string | undefined {
    return this.elements.namedItem("submissionId")?.value;
  }

  get isBusy(): boolean {
    return this.attributes.get("aria-busy") === "true";
  }
}

const pages = new Set<Page>();
afterEach(() => {
  for (const page of pages) page.close();
  pages.clear();
  vi.useRealTimers();
});

function openPage(storage: TabStorage = new TabStorage()): Page {
  const page = new Page({ storage });
  pages.add(page);
  return page;
}

describe("the field of a protected form", () => {
  test("gets the id of its name, which is the path of the action", () => {
    const { idOf, protectForm } = openPage().module;
    const forms = [
      [new FakeForm(), "/orders"],
      [new FakeForm({ action: "https://pay.example/charge?x#y" }), "/charge"],
      [new FakeForm({ action: "" }), "/checkout"],
    ] as const;
    for (const [form, name] of forms) {
      protectForm(form);
      expect([...form.fields]).toMatchObject([{ type: "hidden", value: idOf(name) }]);
    }
    const named = new FakeForm();
    protectForm(named, { name: "cart:17", field: "token" });
    expect(named.elements.namedItem("token")?.value).toBe(idOf("cart:17"));
  });

  test("is the server's where that has rendered one, and is filled where it is empty", () => {
    const { protectForm } = openPage().module;
    const form = new FakeForm({ field: "of-the-server" });
    protectForm(form);
    expect([form.id, form.fields.size]).toEqual(["of-the-server", 1]);
    const empty = new FakeForm();
    empty.append(Object.assign(new Field(), { name: "submissionId" }));
    const takeOff = protectForm(empty);
    expect([empty.id?.length, empty.fields.size]).toEqual([36, 1]);
    takeOff();
    expect(empty.fields.size).toBe(1);
  });

  test.each(["reload", "back_forward"])("keeps its id over %s", (visit) => {
    const storage = new TabStorage();
    const [first, again] = [new FakeForm(), new FakeForm({ visit })];
    openPage(storage).module.protectForm(first);
    openPage(storage).module.protectForm(again);
    expect(again.id).toBe(first.id);
  });

  test("has a new id on a new visit, and one id on each", () => {
    const storage = new TabStorage();
    const [first, second, again] = [new FakeForm(), new FakeForm(), new FakeForm()];
    openPage(storage).module.protectForm(first);
    const { protectForm } = openPage(storage).module;
    const takeOff = protectForm(second);
    expect(second.id).not.toBe(first.id);
    takeOff();
    expect(second.fields.size).toBe(0);
    protectForm(again);
    expect(again.id).not.toBe(first.id);
    expect(openPage(storage).module.idOf("/orders")).toBe(again.id);
  });
});

describe("a submit of a protected form", () => {
  test("is let through once, and disables its button behind the submit", async () => {
    const form = new FakeForm();
    openPage().module.protectForm(form);
    const others = vi.fn();
    form.addEventListener("submit", others);
    expect([form.submit(), form.button.disabled, form.isBusy]).toEqual([true, false, true]);
    expect(form.submit()).toBe(false);
    await vi.waitFor(() => expect(form.button.disabled).toBe(true));
    expect(form.submit()).toBe(false);
    // Nobody else learns of a submit that is held back.
    expect(others).toHaveBeenCalledTimes(1);
    form.window.dispatchEvent(new Event("pageshow"));
    expect([form.button.disabled, form.isBusy]).toEqual([false, false]);
    expect(form.submit()).toBe(true);
  });

  test("that another listener prevents gives everything back", async () => {
    const form = new FakeForm();
    openPage().module.protectForm(form);
    form.addEventListener("submit", (event) => event.preventDefault(), { once: true });
    expect([form.submit(), form.isBusy]).toEqual([false, true]);
    await vi.waitFor(() => expect(form.isBusy).toBe(false));
    expect(form.button.disabled).toBe(false);
    expect(form.submit()).toBe(true);
  });

  test("that shows no page is over after 30 s", () => {
    vi.useFakeTimers();
    const form = new FakeForm();
    openPage().module.protectForm(form);
    form.submit();
    vi.advanceTimersByTime(29_000);
    expect([form.button.disabled, form.isBusy]).toEqual([true, true]);
    vi.advanceTimersByTime(1_500);
    expect([form.button.disabled, form.isBusy]).toEqual([false, false]);
  });

  test("is the form's own again once the protection is taken off", async () => {
    const form = new FakeForm();
    const takeOff = openPage().module.protectForm(form);
    form.submit();
    await vi.waitFor(() => expect(form.button.disabled).toBe(true));
    takeOff();
    expect([form.button.disabled, form.isBusy, form.fields.size]).toEqual([false, false, 0]);
    expect([form.submit(), form.submit(), form.isBusy]).toEqual([true, true, false]);
  });
});
