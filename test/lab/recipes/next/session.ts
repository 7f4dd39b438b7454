import { cookies } from "next/headers";

/** Whose browser it is. Yours verifies a session. */
export async function userOfSession(): Promise<string> {
  return (await cookies()).get("user")?.value ?? "";
}
