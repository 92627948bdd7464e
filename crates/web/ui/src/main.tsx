import { render } from "solid-js/web";
import { App } from "./app";
import { findAnswers } from "./net/client";
import { followStatus } from "./state/profile";
import { followAddress } from "./state/url";
import { followTheme } from "./shell/theme";
import "./style/base.css";
import "./style/shell.css";
import "./style/table.css";
import "./style/views.css";
import "./style/code.css";
import "./style/metrics.css";
import "./style/report.css";

findAnswers();
followTheme();
followAddress();
void followStatus();
render(() => <App />, document.getElementById("page")!);
