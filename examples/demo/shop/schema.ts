import { SubmissionTable } from "submit-lock/sql";

/** Its row commits with the order, the stock and the outbox. */
export const submissions = new SubmissionTable({ schema: "demo_shop" });

/**
 * The shop's tables, in a schema of their own: the `DATABASE_URL` of a shell may be that of a real
 * shop.
 */
export const schema = `
CREATE SCHEMA IF NOT EXISTS demo_shop;

CREATE TABLE IF NOT EXISTS demo_shop.carts (
  id       integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  user_id  text    NOT NULL,
  version  integer NOT NULL DEFAULT 1,  -- every change of a cart makes a new one
  items    jsonb   NOT NULL,
  fence    bigint  NOT NULL DEFAULT 0   -- the highest fencing token that was at work on this cart
);
CREATE INDEX IF NOT EXISTS carts_of_user ON demo_shop.carts (user_id, id);

CREATE TABLE IF NOT EXISTS demo_shop.orders (
  number        integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  user_id       text    NOT NULL,
  cart_id       integer NOT NULL REFERENCES demo_shop.carts,
  cents         integer NOT NULL,
  submission_id text    UNIQUE,         -- the net below the table of submissions
  payment_id    text,                   -- NULL until it is paid
  placed_at     timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX IF NOT EXISTS orders_of_user ON demo_shop.orders (user_id, number);

CREATE TABLE IF NOT EXISTS demo_shop.stock (
  item   text    PRIMARY KEY,
  pieces integer NOT NULL
);
INSERT INTO demo_shop.stock VALUES
  ('Coffee beans, 1 kg', 999999), ('Paper filters, 100 pieces', 999999), ('Mug, blue', 999999)
  ON CONFLICT DO NOTHING;

-- What the warehouse and the mail are told, by a job that reads it. It is written in the transaction
-- that makes it true, so neither is there without the other.
CREATE TABLE IF NOT EXISTS demo_shop.outbox (
  id           integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  topic        text    NOT NULL,
  order_number integer NOT NULL REFERENCES demo_shop.orders,
  UNIQUE (topic, order_number)
);
`;
