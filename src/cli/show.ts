import { suggestion } from "./arguments.ts";
import { answerOf, placeOf, theLock } from "./connect.ts";
import type { Context } from "./context.ts";
import { exitCode } from "./failure.ts";
import { showText } from "./show-text.ts";
import { json, visible, visibleInspection, visibleUser } from "./visible.ts";

/** `submit-lock show <user>` */
export async function show({ args, terminal, open }: Context): Promise<number> {
  const connection = await open();
  const { user } = args;
  const found = await answerOf(connection, theLock(connection).inspect(user));
  if (args.has("json")) terminal.print([json({ userId: user, ...found })]);
  else {
    const freeCommand = suggestion("free", args);
    const freeNowCommand = suggestion("free --now", args);
    const place = visible(placeOf(connection, user));
    const { paint } = terminal;
    const shown = { user: visibleUser(user), found: visibleInspection(found), place };
    terminal.print(showText({ ...shown, at: new Date(), freeCommand, freeNowCommand, paint }));
  }
  return exitCode.done;
}
