// The older majors are installed under aliases, without types of their own. What the tests use of
// them is the same in both.
declare module "express4" {
  import express from "express";
  export default express;
}

declare module "koa2" {
  import Koa from "koa";
  export default Koa;
}
